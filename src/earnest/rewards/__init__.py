"""Verifiers: small functions that read what a model wrote and say whether it holds."""
