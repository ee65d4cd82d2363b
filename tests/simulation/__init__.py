"""Deterministic simulation: a whole session, its outsides and its disasters, from one seed.

python -m tests.simulation --seeds 2000          many seeds, and what they amounted to
python -m tests.simulation --seed 8713           one of them, as it was
"""
