"""Which pre-training objective, generator size and weight tying make the best text encoder?"""

__version__ = "0.1.0"
