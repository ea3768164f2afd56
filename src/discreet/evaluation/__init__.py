"""What a release is worth to its recipient: learning, columns, sample size, and what other settings would give."""
