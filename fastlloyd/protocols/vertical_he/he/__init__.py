"""CKKS as `tenseal` has it, exact integers on it, and keys held in shares. One file imports tenseal."""
