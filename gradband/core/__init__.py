"""The foundation of all rooms: errors, files, resources, random numbers, arrays."""
