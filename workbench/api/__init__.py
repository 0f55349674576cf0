"""What the command line does, for notebooks and scripts, in the same words. `import workbench as wb` has all of it."""
