package run

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// maxName is the longest file name on Linux file systems, in bytes.
const maxName = 255

// PathName returns the file name for an ID of a task, a group or a model. Most IDs are their own names. In others,
// a leading full stop and every byte except ASCII letters, digits and - _ + , : = @ ~ . is percent-encoded; a name
// longer than 255 bytes is shortened and ends in a hash. Different IDs have different names, which are never empty
// or hidden and never lead out of a directory.
//
// Names that differ only in case are the same on some file systems: see [CheckNames].
func PathName(id string) string {
	var b strings.Builder
	for i := range len(id) {
		if c := id[i]; isNameByte(c) && (c != '.' || i > 0) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	switch name := b.String(); {
	case name == "":
		return "%" // unique, because other IDs have digits after it
	case len(name) > maxName:
		sum := sha256.Sum256([]byte(id))
		suffix := "%-" + hex.EncodeToString(sum[:16])
		return name[:maxName-len(suffix)] + suffix
	default:
		return name
	}
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-_+,:=@~.", c) >= 0
}

// CheckNames returns an error if two IDs differ only in case, because a case-insensitive file system would use the
// same files for both.
func CheckNames(ids []string) error {
	folded := make(map[string]string, len(ids))
	for _, id := range ids {
		if err := foldName(folded, id); err != nil {
			return err
		}
	}
	return nil
}

// foldName adds an ID to those that are known by their case-folded name.
func foldName(folded map[string]string, id string) error {
	name := strings.ToLower(PathName(id))
	if other, ok := folded[name]; ok && other != id {
		return fmt.Errorf("the ids %q and %q differ only in upper and lower case: rename one, or leave one out",
			min(other, id), max(other, id))
	}
	folded[name] = id
	return nil
}
