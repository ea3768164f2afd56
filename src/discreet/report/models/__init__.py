"""What is said about a published model, and its folder.

``statement`` is the record that is published, ``drafting`` fills it in, ``card`` says it to people,
``archive`` reads the model's file, ``folder`` names the files.
:mod:`discreet.report.verify.model` re-checks all of it.
"""
