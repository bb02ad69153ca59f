package weights

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env/disk"
)

// The files of a model.
const (
	configName = "config.json"
	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
)

// indexFile is a model.safetensors.index.json.
type indexFile struct {
	Metadata struct {
		Size int64 `json:"total_size"`
	} `json:"metadata"`
	Map map[string]string `json:"weight_map"`
}

type model struct {
	dir     string
	config  map[string]json.RawMessage
	family  string
	indexed bool
	files   []string // with weights, by name
	tensors map[string]tensor
	where   map[string]string // the file of each tensor
}

func openModel(dir string) (*model, error) {
	m := &model{dir: dir, tensors: map[string]tensor{}, where: map[string]string{}, files: []string{singleName}}
	if err := disk.ReadJSON(filepath.Join(dir, configName), &m.config); err != nil {
		return nil, err
	}
	_ = json.Unmarshal(m.config["model_type"], &m.family) // it may be absent
	if q, ok := m.config["quantization_config"]; ok && string(q) != "null" {
		return nil, fmt.Errorf("%s is quantised (%s in %s): dequantise it first", dir, "quantization_config", configName)
	}
	var index indexFile
	err := disk.ReadJSON(filepath.Join(dir, indexName), &index)
	switch {
	case err == nil:
		m.indexed = true
		m.files = slices.Compact(slices.Sorted(maps.Values(index.Map)))
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	for _, name := range m.files {
		if name != filepath.Base(name) {
			return nil, fmt.Errorf("%s names the file %q, outside its directory", indexName, name)
		}
		f, err := openFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
		for tensor, t := range f.tensors {
			if m.indexed && index.Map[tensor] != name {
				return nil, fmt.Errorf("%s says that %s is in %q, and it is in %s",
					indexName, tensor, index.Map[tensor], name)
			}
			m.tensors[tensor], m.where[tensor] = t, name
			delete(index.Map, tensor)
		}
	}
	for tensor, name := range index.Map {
		return nil, fmt.Errorf("%s has no tensor %s, which %s lists", name, tensor, indexName)
	}
	return m, nil
}

// has reports whether a tensor's name contains a part.
func (m *model) has(part string) bool {
	for name := range m.tensors {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// tieKey says that the output layer is the embedding, also within the part about text of a model of pictures and text.
const tieKey, textKey = "tie_word_embeddings", "text_config"

// text is the part of the configuration about text, empty if there is none.
func (m *model) text() (part map[string]json.RawMessage) {
	_ = json.Unmarshal(m.config[textKey], &part) // it may be absent
	return part
}

// tied reports whether the output layer is the embedding. Programs then ignore an output layer that the files may
// have.
func (m *model) tied() bool {
	return string(m.config[tieKey]) == "true" || string(m.text()[tieKey]) == "true"
}

// attention returns how many rows the projections of attention have, none where the configuration does not say so.
func (m *model) attention() map[string]int {
	number := func(key string) (n int) {
		for _, part := range []map[string]json.RawMessage{m.config, m.text()} {
			_ = json.Unmarshal(part[key], &n) // it may be absent
		}
		return n
	}
	heads := number("num_attention_heads")
	if heads <= 0 {
		return nil
	}
	width := cmp.Or(number("head_dim"), number("hidden_size")/heads)
	shared := width * cmp.Or(number("num_key_value_heads"), heads)
	return map[string]int{"q_proj": width * heads, "k_proj": shared, "v_proj": shared}
}

// same reports whether two tensors have the same values.
func (m *model) same(a, b string) (bool, error) {
	var sums []string
	for _, name := range []string{a, b} {
		f, err := openFile(filepath.Join(m.dir, m.where[name]))
		if err != nil {
			return false, err
		}
		t := f.tensors[name]
		sum, err := digest(io.NewSectionReader(f, f.data+t.Offsets[0], t.size()))
		if err = errors.Join(err, f.Close()); err != nil {
			return false, err
		}
		sums = append(sums, sum)
	}
	return sums[0] == sums[1] && m.tensors[a].DType == m.tensors[b].DType, nil
}

// finite returns an error that names a tensor with a value that is not a finite number.
func (m *model) finite() error {
	for _, name := range m.files {
		if err := m.finiteFile(filepath.Join(m.dir, name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (m *model) finiteFile(path string) error {
	f, err := openFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for _, name := range inOrder(f.tensors) {
		t := f.tensors[name]
		if t.DType.size() == 0 {
			continue
		}
		in := io.NewSectionReader(f, f.data+t.Offsets[0], t.size())
		for left := t.size(); left > 0; left -= int64(len(block)) {
			block = block[:min(left, int64(cap(block)))]
			if _, err := io.ReadFull(in, block); err != nil {
				return err
			}
			values, err := t.DType.decode(block)
			if err != nil {
				return err
			}
			if !allFinite(values) {
				return fmt.Errorf("the tensor %s is not finite", name)
			}
		}
	}
	return nil
}

// otherWeights are the endings of files with the same weights in other formats.
var otherWeights = []string{".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".ot"}

// copyRest copies what a model needs beside its weights, with changes of its configuration.
func (m *model) copyRest(out string, changes map[string]any) error {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		info, err := os.Stat(filepath.Join(m.dir, name)) // files of a cache are links
		if err != nil {
			return err
		}
		skip := name == indexName || name == cardName || name == configName || strings.HasPrefix(name, ".") ||
			slices.Contains(otherWeights, filepath.Ext(name)) || !info.Mode().IsRegular()
		if skip {
			continue
		}
		data, err := os.ReadFile(filepath.Join(m.dir, name))
		if err == nil {
			err = disk.WriteFile(filepath.Join(out, name), data)
		}
		if err != nil {
			return err
		}
	}
	config := maps.Clone(m.config)
	for key, value := range changes {
		if config[key], err = json.Marshal(value); err != nil {
			return err
		}
	}
	if _, ok := config["dtype"]; ok && changes["torch_dtype"] != nil {
		config["dtype"] = config["torch_dtype"] // the newer name
		delete(config, "torch_dtype")
	}
	return disk.WriteJSON(filepath.Join(out, configName), config)
}
