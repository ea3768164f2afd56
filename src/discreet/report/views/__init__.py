"""What the pages show, worked out and worded: templates only place it."""
