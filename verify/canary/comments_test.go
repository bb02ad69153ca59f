package canary

import "testing"

// What a comment says goes, and what runners and compilers read in one stays, with the place of everything else.
func TestQuiet(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ file, source, want string }{
		{"test_a.py", "# 3 times 12\ndef test_a():\n    assert f('# 1') == 36  # 36\n",
			"            \ndef test_a():\n    assert f('# 1') == 36      \n"},
		{"test_a.py", "# -*- coding: utf-8 -*-\nx = 1# one\n", "# -*- coding: utf-8 -*-\nx = 1     \n"},
		{"test_a.py", "def test_a():\n    '''It is 36.'''\n    assert f()\n", "def test_a():\n    '''         '''\n    assert f()\n"},
		{"test_a.py", "def test_a(a: int = 1) -> None:\n    x = {'a': 'b'}\n    if x: 'c'\n    y: 'd'\n",
			"def test_a(a: int = 1) -> None:\n    x = {'a': 'b'}\n    if x: 'c'\n    y: 'd'\n"},
		{"test_a.py", "def test_a(a: int = 1) -> None:\n    \"\"\"36\"\"\"\n", "def test_a(a: int = 1) -> None:\n    \"\"\"  \"\"\"\n"},
		{"test_a.py", "def f():\n    '''It is 36.'''\n", "def f():\n    '''It is 36.'''\n"},
		{"a.test.js", "/**\n * @jest-environment jsdom\n */\n/* 36\n */ test('//', () => {}); // 36\n",
			"/**\n * @jest-environment jsdom\n */\n     \n    test('//', () => {});      \n"},
		{"a.test.js", "#!/usr/bin/env node\nconst a = /\\/*/; // 36\n", "#!/usr/bin/env node\nconst a = /\\/*/;      \n"},
		{"a.test.js", "const a = `// ${b /* 36 */}`;\n", "const a = `// ${b /* 36 */}`;\n"},
		{"a_test.go", "//go:build linux\n\n// 36\npackage a /* 36 */\n", "//go:build linux\n\n     \npackage a         \n"},
		{"a_test.go", "package a\nfunc ExampleF() {\n\tF() // 36\n\t// Output:\n\t// 36\n}\n",
			"package a\nfunc ExampleF() {\n\tF()      \n\t// Output:\n\t// 36\n}\n"},
	} {
		if got := string(quiet(Source{Name: tc.file, Data: []byte(tc.source)}, nil)); got != tc.want {
			t.Errorf("%s:\n%q, want\n%q", tc.file, got, tc.want)
		}
	}
}
