"""Two streams of attention: which tokens are predicted in which order, and the states that predict them."""
