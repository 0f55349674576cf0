"""What a run is: its settings with their defaults, the experiments made of runs, and how a run is carried out here."""
