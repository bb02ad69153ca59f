package mine

import (
	"slices"
	"testing"
)

// A changed function is found in a hunk's heading, context or own lines. Lines between functions belong to none.
func TestChangedTests(t *testing.T) {
	t.Parallel()
	for diff, want := range map[string][]string{
		"--- a/a_test.go\n+++ b/a_test.go\n@@ -3,4 +3,5 @@ func TestA(t *testing.T) {\n \ta := 1\n-\tb := 1\n+\tb := 2\n":    {"TestA"},
		"@@ -3,4 +3,5 @@ func TestA(t *testing.T) {\n \ta := 1\n }\n+\n+var x = 1\n+\n+func TestB(t *testing.T) {\n+\tx()\n": {"TestB"},
		"@@ -1 +1 @@ func (s *Suite) TestE() {\n+\tone()\n":                                                                  {"TestE"},
		"@@ -1 +1,2 @@ import (\n \t\"testing\"\n+\t\"os\"\n )\n func TestC(t *testing.T) {\n":                               nil,
		"@@ -9,3 +9,4 @@ class T:\n     def test_a(self):\n         one()\n+        two()\n \n     def test_b(self):\n":      {"test_a"},
		"@@ -9,3 +9,4 @@ class T {\n     public void testD() {\n-        one();\n     }\n+    @Test\n+    int x;\n":          {"testD"},
		"@@ -9 +9,2 @@ int main( int argc, const char ** argv )\n \t{\n+\t\tint x = one();\n":                                {"main"},
		"@@ -9,3 +9,4 @@\n static void test_a(void)\n {\n+    one();\n }\n+int x;\n":                                         {"test_a"},
		"@@ -9,3 +9,4 @@ mod tests {\n     fn long() {\n+        one();\n     }\n@@ -20 +20 @@\n+    two();\n":               {"long"},
	} {
		if got := (Candidate{Tests: diff}).ChangedTests(); !slices.Equal(got, want) {
			t.Errorf("%q changes %q, want %q", diff, got, want)
		}
	}
}
