package run

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// maxName is the longest name that Linux file systems take, in bytes.
const maxName = 255

// PathName is the name of the file or directory of an id: a task, a group, a model. Usual ids are their own names. In
// others, every byte but ASCII letters, digits and - _ + , : = @ ~ and . is percent-encoded, and so is a leading full
// stop; one that would be longer than 255 bytes ends in a hash instead. Different ids have different names, which are
// never empty, never lead elsewhere and hide nothing.
//
// Names that differ in case only are one name on some file systems: see [CheckNames].
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
		return "%" // as no other id, since digits follow there
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

// CheckNames refuses ids that differ in case only: where the file system ignores case, their files would be the same.
func CheckNames(ids []string) error {
	folded := make(map[string]string, len(ids))
	for _, id := range ids {
		if err := foldName(folded, id); err != nil {
			return err
		}
	}
	return nil
}

// foldName adds an id to those that are known by their names without case.
func foldName(folded map[string]string, id string) error {
	name := strings.ToLower(PathName(id))
	if other, ok := folded[name]; ok && other != id {
		return fmt.Errorf("the ids %q and %q differ only in upper and lower case: rename one, or leave one out", other, id)
	}
	folded[name] = id
	return nil
}
