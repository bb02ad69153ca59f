package cli

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

// strangeKey and strangeValue match messages of the YAML library that contain the names of Go types.
var (
	strangeKey   = regexp.MustCompile(`field (\S+) not found in type (\S+)`)
	strangeValue = regexp.MustCompile("cannot unmarshal !!\\w+ (?s)(`.*`) into .*")
)

// plainYAML says what is wrong in a document, a line for each problem, without the names of Go types.
func plainYAML(err error) error {
	wrong, ok := errors.AsType[*yaml.TypeError](err)
	if !ok {
		return err
	}
	var lines []string
	for _, said := range wrong.Errors {
		if m := strangeKey.FindStringSubmatch(said); m != nil {
			said = strings.Replace(said, m[0], fmt.Sprintf("unknown key %q", m[1]), 1)
			if m[2] == reflect.TypeFor[Config]().String() {
				said += ": the keys are " + strings.Join(configKeys(), ", ")
			}
		}
		lines = append(lines, strangeValue.ReplaceAllString(said, "invalid value $1"))
	}
	return errors.New(strings.Join(lines, "\n"))
}

// configKeys returns the keys of a configuration, in order.
func configKeys() []string {
	var keys []string
	for f := range reflect.TypeFor[Config]().Fields() {
		keys = append(keys, f.Tag.Get("yaml"))
	}
	return keys
}
