"""SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018): a question is answered by a span of a paragraph, or not at all."""
