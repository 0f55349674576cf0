"""Linear probes: the same linear readout of the frozen hidden states of every encoder, whatever its objective was.

Alain and Bengio 2016; Tenney et al. 2019 for layers side by side; Hewitt and Liang 2019 for control tasks.
"""
