"""What everything else stands on: errors, files, resources, random numbers, arrays."""
