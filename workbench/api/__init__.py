"""The Python interface, which has the command line's functions under the same names; use `import workbench as wb`."""
