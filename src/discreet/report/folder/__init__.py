"""Public folders on disk: their files, hashes and signatures, the keys of auditors, and reading them back."""
