"""Attacks, a file a family. Each file ends in `ATTACKS`, its attacks as records."""
