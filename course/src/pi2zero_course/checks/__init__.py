"""What the labs' check cells call, on the ranks: one module a lab."""
