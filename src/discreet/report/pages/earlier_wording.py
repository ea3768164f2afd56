"""Earlier wording of the statement page, so that folders published before still verify."""

from __future__ import annotations

_EARLIER = (
    (
        '<p class="note bad" role="alert"><strong>Seeded.</strong> The noise was generated from '
        "a seed, so anyone who knows the seed can remove it. Seeds are for tests: do not publish "
        "this.</p>",
        '<p class="note bad" role="alert"><strong>Seeded.</strong> The noise came from a seed, '
        "so whoever knows the seed can take it off again. This is for tests: do not publish "
        "it.</p>",
    ),
    (
        '<p class="note bad"><strong>Nothing is promised about the people in this file.</strong> '
        "What it reveals is listed below.</p>",
        '<p class="note bad"><strong>Nothing is promised about the people in this file.</strong> '
        "Read below what it gives away.</p>",
    ),
    (
        ">Assumptions of these promises</h",
        ">What has to be true for this to hold</h",
    ),
    (
        "<p>Everything here was declared before any row was read and is published as declared. "
        "Digest of the schema: <code>",
        "<p>Everything here was declared before a row was read, and is published as it stands. "
        "Digest of the schema: <code>",
    ),
    (
        '<p class="note warn"><strong>Not counted.</strong> No ledger was charged for this '
        "release, so other releases of the same table may exist that are not listed here.</p>",
        '<p class="note warn"><strong>Not counted.</strong> No ledger was charged for this '
        "release, so nobody can say what else was published.</p>",
    ),
    (
        '<p>Each bar starts at a perfect guess. <span class="key without">Without the '
        'release</span> is the error of the best guess made without the file. <span class="key '
        'floor">Proven floor</span>: no adversary who knows only the declared range can have a '
        "smaller error than this.</p>",
        '<p>Each bar starts at a perfect guess. <span class="key without">Without the '
        "release</span> is how far off the best guess is that never saw the file, <span "
        'class="key floor">proven floor</span> the error that nobody gets below who knows the '
        "declared range alone.</p>",
    ),
    (
        "<p>The noise distribution of every column is known exactly and listed in "
        "<code>dictionary.csv</code>. Correcting for it costs no privacy and often decides "
        "whether a model is useful.</p>",
        "<p>The noise on every column is known exactly: <code>dictionary.csv</code> says it for "
        "each of them. Correcting for it is free, gives nobody away, and often is the difference "
        "between useless and useful.</p>",
    ),
    (
        "<p>These three lines train a model of ",
        "<p>Three lines learn ",
    ),
    (
        " that corrects for the noise; the learner refuses if the release contains too little "
        "information. Run them in the folder of this page, after <code>pip install "
        "discreet</code>:</p>",
        " from this release, corrected for its noise, or refuse where it says too little. Run "
        "them beside this page, with <code>pip install discreet</code>:</p>",
    ),
    (
        "<p>Anyone can check every number on this page, and that the file agrees with them, "
        "without any secret:</p>",
        "<p>Anybody can check every number on this page, and that the file fits them, without a secret:</p>",
    ),
    (
        "<p>This hashes the files, recomputes the numbers from the declaration, compares the "
        "file with the noise law, and runs the public attacks. An auditor who is given the key "
        "and the original table can reproduce the noise bit for bit.</p>",
        "<p>It hashes the files, computes the numbers again from what was declared, compares the "
        "file with the noise law, and runs the public attacks. An auditor who is given the key "
        "and the source repeats the noise bit for bit.</p>",
    ),
    (
        ". Machine-readable version: <code>statement.json</code>.</p></footer>",
        ". The same in a form for programs: <code>statement.json</code>.</p></footer>",
    ),
    (
        "To correct a mean, subtract the mean of the noise; to correct a variance, subtract the "
        "variance of the noise. Slopes in a regression are too small until the variance of the "
        "noise is subtracted from the sums of squares.",
        "A mean stays what it is once the noise&#39;s own mean is taken off; a variance has "
        "grown by the noise&#39;s variance; a slope in a regression has shrunk, and grows back "
        "when the noise&#39;s variance is taken off the sums of squares.",
    ),
    (
        "Each categorical cell was kept, or replaced by one of the other levels with equal "
        "probability. An observed share is a known linear function of the true share; solve it "
        "for the true share.",
        "Cells of a list were kept, or moved to one of the other levels with equal chances. A "
        "share that is seen is a known mixture of the true share and of what was moved, and can "
        "be solved for it.",
    ),
    (
        "Some columns were randomized together: each combination was kept, or replaced by one of "
        "the others with equal probability. Solve for the shares of combinations.",
        "Some columns were randomized together: their combination was kept, or moved to one of "
        "the others with equal chances. Solve for shares of combinations.",
    ),
    (
        "Each row shows a random selection of its columns. Ignore the hidden cells: they are not "
        "missing values and carry no information. Each shown cell was kept, or replaced by one "
        "of the other levels with equal probability.",
        "Each row shows some of its columns, picked at random: leave the others out, they are "
        "not missing and say nothing. Cells that are shown were kept, or moved to one of the "
        "other levels with equal chances.",
    ),
    (
        "Numbers were clamped to their range after noise was added, so subtracting moments no "
        "longer corrects for it. Use the likelihood of a clamped cell instead.",
        "Numbers were moved back into their range after the noise: subtracting moments no longer "
        "undoes it. Use the likelihood of a clamped cell instead.",
    ),
    (
        "Whether a number is missing was randomized: a shown cell may have been missing, and "
        "then holds the middle of the range plus noise. First solve for the share of missing "
        "cells, using missing_keep.",
        "A number that may be missing has a randomized flag: a cell that is shown may have been "
        "missing, and then holds the middle of the range with noise. Solve for the share of "
        "missing cells with missing_keep first.",
    ),
    (
        "Numbers were redrawn inside their range from a distribution that depends on the value, "
        "so means are biased towards the middle. Use the likelihood of the published law instead "
        "of subtracting moments.",
        "Numbers were redrawn inside their range by a law that depends on the value: a mean is "
        "pulled to the middle. Use the likelihood of the published law instead of subtracting "
        "moments.",
    ),
    (
        "This noise leaves the model of one named learner unchanged. Train that learner on the "
        "file without correcting for the noise, and do not rely on other statistics of this "
        "file.",
        "This noise was made so that one named learner does not notice it. Train that learner on "
        "the file as it is; do not correct for the noise, and do not trust other statistics of "
        "this file.",
    ),
    (
        "The rows belong to no real person. Logistic regression trained on all coordinates, at "
        "full precision, without another intercept and with the penalty given in the dictionary, "
        "yields the released classifier. To apply it to your own rows, transform them by "
        "`coordinate = scale * cell + shift`. The file contains nothing else about the table: do "
        "not compute means or correlations from it.",
        "The rows are nobody&#39;s. Train logistic regression on all coordinates as they are, "
        "all digits, without a further intercept and with the penalty that the dictionary names, "
        "and it is the released classifier; `coordinate = scale * cell + shift` carries your own "
        "rows to where it is used. Nothing else about the table is in this file: do not read "
        "means or correlations off it.",
    ),
    (
        "No noise was added: use the file as it is published.",
        "No noise was added: use the file as it is.",
    ),
    (
        ">not given<",
        ">nobody was named<",
    ),
)
"""Each sentence that was rewritten, as HTML, with what it said before."""


def to_earlier_wording(page: str) -> str:
    """Return the statement page with every rewritten sentence as it was before.

    Parameters
    ----------
    page : str
        Page of the current templates.
    """
    for now, before in _EARLIER:
        page = page.replace(now, before)
    return page
