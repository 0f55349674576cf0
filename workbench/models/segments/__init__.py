"""What is trained on two segments of text: picks of spans of words, and the losses of words and of pairs."""
