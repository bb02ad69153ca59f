package metrics

import (
	_ "embed"
	"strings"
)

// Definition says what a metric means.
type Definition struct {
	// Name is the name of one metric or, if it ends in a slash, the prefix of several.
	Name string
	Help string
	// Unit is empty for counts, fractions and what has none.
	Unit string
	// Place is the place in the catalogue, after all others for a name that is not in it.
	Place int
}

// Describe returns the definition of a name, or a general one for a name that is not in the catalogue.
func Describe(name string) Definition {
	all := Catalogue()
	best, length := Definition{Help: "Reported by the environment or the trainer under this name.", Place: len(all)}, 0
	for _, d := range all {
		prefix := strings.HasSuffix(d.Name, "/")
		if (d.Name == name || prefix && strings.HasPrefix(name, d.Name)) && len(d.Name) > length {
			best, length = d, len(d.Name)
			if prefix {
				best.Help += " Here: " + strings.TrimPrefix(name, d.Name) + "."
			}
		}
	}
	best.Name = name
	return best
}

// catalogue has a line for each definition: name, unit and help, with a tab between them.
//
//go:embed catalogue.txt
var catalogue string

// Catalogue lists the metrics that a training run writes, in an order for reading.
func Catalogue() []Definition {
	var all []Definition
	for line := range strings.Lines(catalogue) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
		all = append(all, Definition{Name: fields[0], Unit: fields[1], Help: fields[2], Place: len(all)})
	}
	return all
}
