package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// contextValue is the value of --context: a number of tokens, or several if the command accepts them.
type contextValue struct{ o *ModelFlags }

// Type is the name of the value's type in help texts.
func (v contextValue) Type() string { return "tokens" }

// String is the value as Set reads it.
func (v contextValue) String() string {
	if v.o == nil {
		return "" // pflag asks a zero value, to compare the default with it
	}
	words := []string{strconv.Itoa(v.o.Context)}
	if len(v.o.Contexts) > 1 {
		words = nil
		for _, n := range v.o.Contexts {
			words = append(words, strconv.Itoa(n))
		}
	}
	return strings.Join(words, ",")
}

// Set reads "65536", "64k" or, where several are taken, "16k,32k,64k".
func (v contextValue) Set(text string) error {
	var all []int
	for word := range strings.SplitSeq(text, ",") {
		n, err := parseTokens(strings.TrimSpace(word))
		if err != nil {
			return err
		}
		all = append(all, n)
	}
	slices.Sort(all)
	switch distinct := slices.Compact(slices.Clone(all)); {
	case len(distinct) < len(all):
		return fmt.Errorf("%s names a length twice", text)
	case len(all) > 1 && !v.o.SeveralContexts:
		return fmt.Errorf("this command takes one context length, and %q has %d", text, len(all))
	case len(all) > 1 && all[0] == 0:
		return fmt.Errorf("0 (no limit) does not go with other lengths")
	}
	v.o.Contexts, v.o.Context = all, all[len(all)-1]
	return nil
}

// tokens is a number of tokens: the value of a flag, or a length in a configuration.
type tokens int

// Type is the name of the value's type in help texts.
func (t *tokens) Type() string { return "tokens" }

// String is the value as Set reads it.
func (t *tokens) String() string { return strconv.Itoa(int(*t)) }

// Set reads "65536" or "64k".
func (t *tokens) Set(text string) error {
	n, err := parseTokens(text)
	if err == nil {
		*t = tokens(n)
	}
	return err
}

func (t *tokens) UnmarshalYAML(node *yaml.Node) error {
	if err := t.Set(node.Value); err != nil {
		return fmt.Errorf("line %d: context: %w", node.Line, err)
	}
	return nil
}

// mostTokens is far beyond every model's context.
const mostTokens = 1 << 30

// parseTokens reads a number of tokens; k is 1024 of them.
func parseTokens(word string) (int, error) {
	digits, thousands := strings.CutSuffix(strings.ToLower(word), "k")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || n > mostTokens || digits[0] == '+' {
		return 0, fmt.Errorf("invalid number of tokens %q (for example 65536, or 64k)", word)
	}
	if thousands {
		n *= 1024
	}
	return n, nil
}
