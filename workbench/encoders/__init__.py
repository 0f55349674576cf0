"""Built-in families of encoders, one file each. `workbench.models.families` has their contract and finds them."""
