package recipe_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"deepswe/env/testkit"
)

type object = map[string]any

// schemas writes JSON schemas of the kinds in swagger.json and in ray.io_rayclusters.yaml, which .ci/recipes has put
// into dir, under the names that kubeconform looks for. It returns their directory.
func schemas(t *testing.T, dir string) string {
	t.Helper()
	var api struct{ Definitions map[string]object }
	if err := json.Unmarshal(must(os.ReadFile(filepath.Join(dir, "swagger.json"))), &api); err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	write := func(kind, group, version string, schema any) {
		suffix, _, _ := strings.Cut(group, ".")
		name := strings.ToLower(strings.Join(append([]string{kind}, strings.Fields(suffix+" "+version)...), "-"))
		testkit.WriteFile(t, filepath.Join(to, name+".json"), string(must(json.Marshal(schema))))
	}
	for name, definition := range api.Definitions {
		seal(definition)
		kinds, _ := definition["x-kubernetes-group-version-kind"].([]any)
		for _, k := range kinds {
			k := k.(object)
			write(k["kind"].(string), k["group"].(string), k["version"].(string),
				object{"$ref": "definitions.json#/definitions/" + name})
		}
	}
	// The API takes numbers where its own document says strings.
	api.Definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = object{"type": []string{"string", "integer"}}
	api.Definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = object{"type": []string{"string", "number"}}
	testkit.WriteFile(t, filepath.Join(to, "definitions.json"),
		string(must(json.Marshal(object{"definitions": api.Definitions}))))

	var ray struct {
		Spec struct {
			Group    string
			Names    struct{ Kind string }
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema object }
			}
		}
	}
	if err := yaml.Unmarshal(must(os.ReadFile(filepath.Join(dir, "ray.io_rayclusters.yaml"))), &ray); err != nil {
		t.Fatal(err)
	}
	for _, version := range ray.Spec.Versions {
		seal(version.Schema.OpenAPIV3Schema)
		write(ray.Spec.Names.Kind, ray.Spec.Group, version.Name, version.Schema.OpenAPIV3Schema)
	}
	return to
}

// seal lets the objects of a schema have no members but those that it names, as strict validation does.
func seal(schema any) {
	switch schema := schema.(type) {
	case []any:
		for _, one := range schema {
			seal(one)
		}
	case object:
		for _, one := range schema {
			seal(one)
		}
		_, named := schema["properties"].(object)
		if _, open := schema["additionalProperties"]; named && !open && schema["x-kubernetes-preserve-unknown-fields"] != true {
			schema["additionalProperties"] = false
		}
	}
}
