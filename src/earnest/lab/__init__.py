"""Readers of run directories: what a run measured, drawn and said in plain words. Nothing here trains or needs torch."""
