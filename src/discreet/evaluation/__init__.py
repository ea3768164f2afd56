"""Usefulness of a release: models trained on it, column comparisons, sample sizes and other amounts of noise.

``learning`` compares models trained on true and on published rows, with ``noise_aware`` and ``exact_models``
for releases that allow more, and ``_models`` for models and their scores. ``columns`` compares the columns,
and ``tallies`` holds the rows that are compared, or counts those of a synthetic table and of the true one.
``what_if`` plans a release with more or less noise, and estimates the rows that a learner needs. ``ways``
tries the ways to publish a table on the same ``compared_rows``, and ``way_choice`` recommends one of them.
"""
