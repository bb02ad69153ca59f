package harness

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadPredictions(t *testing.T) {
	t.Parallel()
	patch := "diff --git a/x b/x\n"
	want := []Prediction{{"a-1", "m", &patch}, {"b-2", "m", nil}}
	for name, text := range map[string]string{
		"list":     ` [{"instance_id":"a-1","model_name_or_path":"m","model_patch":"diff --git a/x b/x\n"},{"instance_id":"b-2","model_name_or_path":"m","model_patch":null}]`,
		"lines":    "{\"instance_id\":\"a-1\",\"model_name_or_path\":\"m\",\"model_patch\":\"diff --git a/x b/x\\n\"}\n\n{\"instance_id\":\"b-2\",\"model_name_or_path\":\"m\"}\n",
		"object":   `{"x":{"instance_id":"a-1","model_name_or_path":"m","model_patch":"diff --git a/x b/x\n"},"b-2":{"instance_id":"b-2","model_name_or_path":"m"}}`,
		"the last": `[{"instance_id":"a-1"},{"instance_id":"b-2","model_name_or_path":"m"},{"instance_id":"a-1","model_name_or_path":"m","model_patch":"diff --git a/x b/x\n"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadPredictions(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("predictions (-want +got):\n%s", diff)
			}
		})
	}
	for name, text := range map[string]string{
		"a number":      "7",
		"no id":         `[{"model_patch":"x"}]`,
		"no object":     `["a-1"]`,
		"half a line":   "{\"instance_id\":\"a-1\"}\n{\"instance",
		"another shape": `{"predictions":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := ReadPredictions(strings.NewReader(text)); err == nil {
				t.Errorf("predictions are %v, want an error", got)
			}
		})
	}
	if got, err := ReadPredictions(strings.NewReader(" \n")); err != nil || got != nil {
		t.Errorf("nothing reads as %v, %v", got, err)
	}
}
