"""Reports on a test that a policy plays: who leads, by how much, and whether one may stop."""
