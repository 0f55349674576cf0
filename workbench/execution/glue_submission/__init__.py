"""Predictions on GLUE's test sets as one zip for its server, with a card that says where each file comes from."""
