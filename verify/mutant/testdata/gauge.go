// Package gauge has a limit of 3.
package gauge

import "errors"

type gauge struct {
	Level int `json:"level"`
}

func (g *gauge) add(values []int, done bool) error {
	if len(values) < 2 && !done {
		return errors.New("too few" + "values")
	}
	for i := 0; i < len(values); i++ {
		g.Level += values[i]*2 - 1
	}
	level := g.Level
	g.report(level)
	switch {
	case level == 10:
		g.Level = 0
	}
	return nil
}
