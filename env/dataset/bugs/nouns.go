package bugs

// The nouns of the programs to learn from and of those to measure with. No noun begins with another one.
var (
	trainNouns = []string{
		"apple", "badge", "barrel", "basket", "beacon", "bench", "blanket", "bottle", "branch", "bridge", "bucket", "button",
		"cabin", "candle", "carpet", "castle", "ceiling", "chapter", "chimney", "cloud", "coat", "column", "comet", "copper",
		"cottage", "crate", "curtain", "cushion", "desk", "donkey", "drawer", "engine", "falcon", "feather", "ferry",
		"fiddle", "garden", "glove", "hammer", "helmet", "island", "jacket", "kettle", "ladder", "lemon", "magnet", "marble",
		"mirror", "needle", "orchard", "paddle", "parcel", "pencil", "pillow", "planet", "pocket", "puzzle", "rabbit",
		"ribbon", "rocket", "saddle", "sandal", "shovel", "signal", "spoon", "stable", "statue", "ticket", "tunnel",
		"violin", "wagon", "wallet", "whistle", "zipper",
	}
	heldNouns = []string{
		"acorn", "anchor", "arrow", "balloon", "bicycle", "biscuit", "camera", "canyon", "cherry", "cricket", "dagger",
		"dolphin", "eagle", "envelope", "flute", "gallery", "goblet", "harvest", "hornet", "igloo", "jungle", "kitten",
		"lizard", "mango", "napkin", "oyster", "peanut", "quarry", "raven", "sailor", "teapot", "umbrella", "valley",
		"walnut", "yacht", "zebra",
	}
)
