package guest

import (
	"io/fs"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// messages returns functions that make an empty message of each type.
func messages() map[string]func() Message {
	return map[string]func() Message{
		"hello":     func() Message { return new(Hello) },
		"run":       func() Message { return new(RunCall) },
		"run reply": func() Message { return new(runReply) },
		"file":      func() Message { return new(FileInfo) },
		"read":      func() Message { return new(ReadCall) },
		"write":     func() Message { return new(WriteCall) },
		"list":      func() Message { return new(ListCall) },
		"listed":    func() Message { return new(Listing) },
		"query":     func() Message { return new(Query) },
		"match":     func() Message { return new(Match) },
		"tree":      func() Message { return new(TreeCall) },
		"remember":  func() Message { return new(RememberCall) },
		"known":     func() Message { return new(KnownFile) },
		"unpack":    func() Message { return new(UnpackCall) },
		"credit":    func() Message { return new(credit) },
		"failure":   func() Message { return new(failure) },
	}
}

// fill sets every field that is encoded, including those of embedded structs.
func fill(t *rapid.T, v reflect.Value) {
	for i := range v.NumField() {
		field, f := v.Type().Field(i), v.Field(i)
		if !field.IsExported() && !field.Anonymous {
			f = reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem()
		}
		switch x := f.Addr().Interface().(type) {
		case *string:
			*x = string(rapid.SliceOf(rapid.Byte()).Draw(t, field.Name)) // names need not be UTF-8
		case *Kind:
			*x = Kind(rapid.String().Draw(t, field.Name))
		case *[]string:
			*x = rapid.SliceOfN(rapid.String(), 1, 4).Draw(t, field.Name)
		case *[]byte:
			if field.Name == "Text" { // Stdin is sent as data
				*x = rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, field.Name)
			}
		case *int:
			*x = rapid.Int().Draw(t, field.Name)
		case *int64:
			*x = rapid.Int64().Draw(t, field.Name)
		case *time.Duration:
			*x = time.Duration(rapid.Int64().Draw(t, field.Name))
		case *bool:
			*x = rapid.Bool().Draw(t, field.Name)
		case *fs.FileMode:
			*x = fs.FileMode(rapid.Uint32().Draw(t, field.Name))
		case *Output, *[]FileInfo: // sent as data
		default:
			if f.Kind() != reflect.Struct {
				t.Fatalf("field %s has a type that this test does not know", field.Name)
			}
			fill(t, f)
		}
	}
}

// TestMessages: every field of every message arrives unchanged. A field that was added to a struct, but not to its code
// method, fails here.
func TestMessages(t *testing.T) {
	for name, empty := range messages() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				sent, got := empty(), empty()
				fill(t, reflect.ValueOf(sent).Elem())
				if !decode(encode(sent), got) {
					t.Fatalf("%+v cannot be decoded", sent)
				}
				if !reflect.DeepEqual(sent, got) {
					t.Fatalf("sent %+v, got %+v", sent, got)
				}
			})
		})
	}
}

// FuzzDecode: no payload makes a decoder panic, accept what cannot be encoded, or return too many files.
func FuzzDecode(f *testing.F) {
	for _, empty := range messages() {
		f.Add(encode(empty()))
	}
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		for name, empty := range messages() {
			m := empty()
			if decode(payload, m) && !decode(encode(m), empty()) {
				t.Errorf("%s: %q is decoded into what cannot be encoded", name, payload)
			}
		}
		var files []FileInfo
		collect(&files, 1000)(payload)
		if len(files) > 1000 {
			t.Errorf("%d files", len(files))
		}
	})
}

func TestOverlay(t *testing.T) {
	got := Overlay([]string{"A=1", "B=2", "A=3"}, nil, []string{"C=", "B=x=y", "NO_VALUE"}, []string{"A=5"})
	if want := []string{"A=5", "B=x=y", "C=", "NO_VALUE"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
