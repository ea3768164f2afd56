"""Privacy statements: the published documents, and how they follow from a release or a trained model."""
