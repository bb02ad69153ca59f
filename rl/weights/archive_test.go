package weights_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/rl/weights"
)

// member is a member of an archive.
type member struct {
	name string
	kind byte
	data string
	link string
}

const config = `{"peft_type": "LORA", "r": 8, "target_modules": null}`

// tensors returns a safetensors file with two modules.
func tensors() string {
	header := `{"base_model.model.model.layers.0.mlp.up_proj.lora_A.weight":` +
		`{"dtype":"F32","shape":[1],"data_offsets":[0,4]},` +
		`"base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + "12345678"
}

func pack(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	archive := tar.NewWriter(zipped)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Typeflag: m.kind, Linkname: m.link, Size: int64(len(m.data)), Mode: 0o644}
		if err := archive.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(m.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func good() []member {
	return []member{
		{name: "/", kind: tar.TypeDir}, // as SkyRL writes it
		{name: "adapter_config.json", kind: tar.TypeReg, data: config},
		{name: "adapter_model.safetensors", kind: tar.TypeReg, data: tensors()},
	}
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "adapters", "v1")
	if err := weights.Unpack(bytes.NewReader(pack(t, good()...)), dir); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "adapter_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Rank    int      `json:"r"`
		Modules []string `json:"target_modules"`
	}
	err = json.Unmarshal(data, &got)
	if err != nil || got.Rank != 8 || !slices.Equal(got.Modules, []string{"q_proj", "up_proj"}) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := weights.Unpack(bytes.NewReader(pack(t, good()...)), dir); !errors.Is(err, os.ErrExist) {
		t.Errorf("over another one: %v", err)
	}
}

// SkyRL's GPU backends do not compress their archives, in which the adapter is only a small part.
func TestUnpackUncompressed(t *testing.T) {
	t.Parallel()
	plain := func(members ...member) io.Reader {
		zipped, err := gzip.NewReader(bytes.NewReader(pack(t, members...)))
		if err != nil {
			t.Fatal(err)
		}
		return zipped
	}
	dir := filepath.Join(t.TempDir(), "adapter")
	if err := weights.Unpack(plain(good()...), dir); err != nil {
		t.Error(err)
	}
	whole := []member{
		{name: "./config.json", kind: tar.TypeReg, data: "{}"},
		{name: "./model-00001-of-00002.safetensors", kind: tar.TypeReg, data: tensors()},
	}
	other := filepath.Join(t.TempDir(), "merged")
	if err := weights.Unpack(plain(whole...), other); !errors.Is(err, weights.ErrMerged) || errors.Is(err, weights.ErrArchive) {
		t.Errorf("all weights: %v", err)
	}
	if entries, err := os.ReadDir(filepath.Dir(other)); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// A model from the trainer's server is unpacked complete and usable, or it is refused.
func TestUnpackModel(t *testing.T) {
	t.Parallel()
	whole := func(weights string) []member {
		return []member{
			{name: "./", kind: tar.TypeDir},
			{name: "./config.json", kind: tar.TypeReg, data: "{}"},
			{name: "./model.safetensors", kind: tar.TypeReg, data: weights},
			{name: "./additional_chat_templates", kind: tar.TypeDir},
			{name: "./additional_chat_templates/tools.jinja", kind: tar.TypeReg, data: "{{ tools }}"},
		}
	}
	dir := filepath.Join(t.TempDir(), "model")
	card := weights.Card{Base: "acme/base", Training: []string{"By a test."}}
	if err := weights.UnpackModel(bytes.NewReader(pack(t, whole(tensors())...)), dir, card); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"model.safetensors": tensors(), "additional_chat_templates/tools.jinja": "{{ tools }}",
		"README.md": "---\nbase_model: acme/base\nbase_model_relation: finetune\nlibrary_name: transformers\n" +
			"pipeline_tag: text-generation\ntags:\n    - deepswe\n    - reinforcement-learning\n---\n\n" +
			"# acme/base, trained with deepswe\n\n- By a test.\n\nAll weights of the model, as its trainer has saved them.\n",
	} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	infinite := strings.TrimSuffix(tensors(), "12345678") + "1234\x00\x00\x80\x7f"
	shards := slices.Insert(whole(tensors()), 3, member{name: "./model.safetensors.index.json", kind: tar.TypeReg,
		data: `{"weight_map": {"a": "model-00001-of-00002.safetensors"}}`})
	for name, c := range map[string]struct {
		members []member
		is      error
		says    string
	}{
		"an adapter":   {good(), weights.ErrAdapter, "has an adapter"},
		"infinity":     {whole(infinite), weights.ErrArchive, "layers.0.self_attn.q_proj.lora_B.weight is not finite"},
		"cut":          {whole(tensors()[:len(tensors())-3]), weights.ErrArchive, "truncated in the tensor"},
		"no weights":   {whole(tensors())[:2], weights.ErrArchive, "model.safetensors: no such file"},
		"a lost shard": {shards, weights.ErrArchive, "model-00001-of-00002.safetensors: no such file"},
		"outside":      {append(whole(tensors()), member{name: "a/../../b", kind: tar.TypeReg}), weights.ErrArchive, "outside"},
		"hidden":       {append(whole(tensors()), member{name: "a/.git", kind: tar.TypeReg}), weights.ErrArchive, "outside"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "model")
			err := weights.UnpackModel(bytes.NewReader(pack(t, c.members...)), out, weights.Card{})
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
			if left, err := os.ReadDir(filepath.Dir(out)); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// Only the files of the adapter in a directory are copied.
func TestCopy(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "adapters", "v1")
	if err := weights.Copy(from, to); !errors.Is(err, weights.ErrArchive) {
		t.Errorf("an empty directory: %v", err)
	}
	below := filepath.Join(from, "adapter")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, m := range append(good()[1:], member{name: "README.md"}) {
		if err := os.WriteFile(filepath.Join(below, m.name), []byte(m.data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := weights.Copy(from, to); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(to)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
	if err := os.Remove(filepath.Join(below, "adapter_config.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(below, "adapter_config.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := weights.Copy(from, to+"-2"); !errors.Is(err, weights.ErrArchive) {
		t.Errorf("what is no file: %v", err)
	}
}

func TestUnpackRefuses(t *testing.T) {
	t.Parallel()
	with := func(m ...member) []byte { return pack(t, append(good(), m...)...) }
	whole := with()
	short := good()
	short[2].data = short[2].data[:len(short[2].data)-3]
	var endless bytes.Buffer // for a second member of the gzip file
	zipped := gzip.NewWriter(&endless)
	if _, err := zipped.Write(make([]byte, 2<<20)); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	broken := good()
	broken[1].data = "{"
	for name, data := range map[string][]byte{
		"parent":        with(member{name: "../evil", kind: tar.TypeReg, data: "x"}),
		"hidden parent": with(member{name: "a/../../evil", kind: tar.TypeReg, data: "x"}),
		"absolute":      with(member{name: "/etc/evil", kind: tar.TypeReg, data: "x"}),
		"symbolic link": with(member{name: "a", kind: tar.TypeSymlink, link: "/etc/passwd"}),
		"hard link":     with(member{name: "a", kind: tar.TypeLink, link: "adapter_config.json"}),
		"device":        with(member{name: "a", kind: tar.TypeChar}),
		"directory":     with(member{name: "sub", kind: tar.TypeDir}),
		"twice":         with(good()[1]),
		"torn":          whole[:len(whole)-20],
		"torn early":    whole[:60],
		"no checksum":   whole[:len(whole)-8],
		"not gzip":      []byte("hello"),
		"empty":         nil,
		"no weights":    pack(t, good()[:2]...),
		"cut weights":   pack(t, short...),
		"bad config":    pack(t, broken...),
		"endless":       slices.Concat(whole, endless.Bytes()),
		"directories":   with(good()[0]),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			err := weights.Unpack(bytes.NewReader(data), filepath.Join(parent, "in", "v1"))
			if !errors.Is(err, weights.ErrArchive) {
				t.Errorf("%v", err)
			}
			left, _ := filepath.Glob(filepath.Join(parent, "in", "*"))
			outside, _ := filepath.Glob(filepath.Join(parent, "*"))
			if len(left) > 0 || len(outside) > 1 {
				t.Errorf("left behind: %q, %q", left, outside)
			}
		})
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(pack(f, good()...))
	f.Add([]byte("hello"))
	f.Fuzz(func(t *testing.T, data []byte) {
		parent := t.TempDir()
		err := weights.Unpack(bytes.NewReader(data), filepath.Join(parent, "in", "v1"))
		if left, _ := filepath.Glob(filepath.Join(parent, "in", "*")); err != nil && len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		if outside, _ := filepath.Glob(filepath.Join(parent, "*")); len(outside) > 1 {
			t.Errorf("outside: %q", outside)
		}
	})
}
