"""Logs of released versions. Each has to load for ever; `tests.harness.test_versions` holds that.

python -m tests.golden.record 0.1.0        records those of a new release; never again for an old one
"""
