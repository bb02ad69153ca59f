package canary

import "testing"

// The words of comments and messages are blanked. What runners and compilers read in a comment stays, and so does the
// position of everything else.
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
		{"test_a.py", "def test_a():\n    assert f('a', 'b') == 36, 'not 72/2'\n    x = 'y'\n",
			"def test_a():\n    assert f('a', 'b') == 36, '        '\n    x = 'y'\n"},
		{"test_a.py", "def test_a():\n    assert f() == 36, (\n        f'72/2 {f()}'\n        '3*12')\n    'y'\n",
			"def test_a():\n    assert f() == 36, (\n        f'          '\n        '    ')\n    'y'\n"},
		{"test_a.py", "def test_a():\n    assert f() \\\n        , '3*12 %d' % f()\n    g('a', 'b')\n",
			"def test_a():\n    assert f() \\\n        , '     %d' % f()\n    g('a', 'b')\n"},
		{"test_a.py", "self.assertEqual(f(1, '2'), '36', '3*12')\nself.assertTrue('3' in f('6'), msg='3*12')\ng.assertEqual(1, 2, '3')\n",
			"self.assertEqual(f(1, '2'), '36', '    ')\nself.assertTrue('3' in f('6'), msg='    ')\ng.assertEqual(1, 2, '3')\n"},
		{"a.test.js", "assert.equal(f('3', 'a'), 36, 'not 72/2'); assert(f('a') == 1, \"72/2\"); g.equal(1, 2, '3')\n",
			"assert.equal(f('3', 'a'), 36, '        '); assert(f('a') == 1, \"    \"); g.equal(1, 2, '3')\n"},
		{"a_test.go", "package a\nfunc TestA(t *testing.T) {\n\tt.Errorf(\"got %d, not 72/2\", f(\"a\"))\n\tt.Run(\"a\", b)\n}\n",
			"package a\nfunc TestA(t *testing.T) {\n\tt.Errorf(\"    %d          \", f(\" \"))\n\tt.Run(\"a\", b)\n}\n"},
		{"test_a.py", "assert f([3]) == 36, 'as %d' % (a[36] + 0x24 * [3][0] + 7.5e3)\n",
			"assert f([3]) == 36, '   %d' % (a[36] + 0x11 * [1][0] + 1.1e1)\n"},
		{"test_a.py", "self.assertEqual(f(), 36, f'{3 * 12} {{')\ncheck.assert_(36)\n",
			"self.assertEqual(f(), 36, f'           ')\ncheck.assert_(36)\n"},
		{"a.test.js", "assert.equal(f(3), 36, `${3 * 12}` + 3 + a[3]); assert.equal(f(3), `${36}`);\n",
			"assert.equal(f(3), 36, `         ` + 1 + a[3]); assert.equal(f(3), `${36}`);\n"},
		{"a_test.go", "package a\nfunc TestA(t *testing.T) {\n\tt.Errorf(\"%d, %v\", 3*12, [2]int{3, 12})\n\tf(fmt.Errorf(\"3\"), 3)\n}\n",
			"package a\nfunc TestA(t *testing.T) {\n\tt.Errorf(\"%d  %v\", 1*11, [2]int{1, 11})\n\tf(fmt.Errorf(\"3\"), 3)\n}\n"},
		{"a_test.go", "package a\nfunc TestA(t *testing.T) {\n\trequire.Error(t, f(\"3\"), \"3*12\")\n\ts.T().Errorf(\"3\")\n}\n",
			"package a\nfunc TestA(t *testing.T) {\n\trequire.Error(t, f(\"3\"), \"    \")\n\ts.T().Errorf(\" \")\n}\n"},
		{"a_test.go", "package a\nfunc TestA(t *testing.T) {\n\tassert.Equal(t, 36, f(\"3\"), \"%d\", 3*12)\n}\n",
			"package a\nfunc TestA(t *testing.T) {\n\tassert.Equal(t, 36, f(\"3\"), \"%d\", 1*11)\n}\n"},
		{"a.test.js", "expect(f('3'), '3*12').toBe('36'); expect.fail('36')\n", "expect(f('3'), '    ').toBe('36'); expect.fail('  ')\n"},
		{"test_a.py", "self.fail('36', )\nself.fail('36', param)\nself.fail(f(1, 2), x)\nself.fail(f'36 {g(1, 2)}')\n",
			"self.fail('  ', )\nself.fail('36', param)\nself.fail(f(1, 2), x)\nself.fail(f'            ')\n"},
		{"test_a.py", "if f('3') != 36:\n    pytest.fail('not 3*12')\n", "if f('3') != 36:\n    pytest.fail('        ')\n"},
		{"a.test.js", "// @ts-expect-error 3*12\n/* @ts-ignore 36 */ /** @jest-environment node */\n",
			"// @ts-expect-error     \n/* @ts-ignore    */ /** @jest-environment node */\n"},
		{"a_test.go", "package a\n// Output: 36\nfunc TestA() {\n\tF()\n\t// Output: 36\n}\n",
			"package a\n             \nfunc TestA() {\n\tF()\n\t             \n}\n"},
		{"conftest.py", "@pytest.fixture(scope='module')\ndef a():\n    '''3*12'''\n    return f.__doc__\n",
			"@pytest.fixture(scope='module')\ndef a():\n    '''    '''\n    return f.__doc__\n"},
		{"a.sh", "#!/bin/sh\n# 36\ntest_a() {\n\tis 36 \"$(f '# 1' ${a#b} $#)\" # 36\n}\n",
			"#!/bin/sh\n    \ntest_a() {\n\tis 36 \"$(f '# 1' ${a#b} $#)\"     \n}\n"},
		{"test_a.py", "m = f'{3 * 12}'\nassert f() == 36, m\nm = '36' + g(\n    36)\nself.assertEqual(f(), 36, msg=m)\nn = '36'\n",
			"m = f'        '\nassert f() == 36, m\nm = '  ' + g(\n    11)\nself.assertEqual(f(), 36, msg=m)\nn = '36'\n"},
		{"test_a.py", "m = '36'\nassert f() == 36, m\n", "m = '  '\nassert f() == 36, m\n"},
		{"test_a.py", "m = '36'\nassert f(m) == 36, m\n", "m = '36'\nassert f(m) == 36, m\n"},
		{"a.test.js", "const m = `${3 * 12}`;\nassert.equal(f(), 36, m);\nlet n = 36\n",
			"const m = `         `;\nassert.equal(f(), 36, m);\nlet n = 36\n"},
		{"a.test.js", "/** @test 3*12 */\n// @group 36\n", "                 \n            \n"},
		{"test_a.py", "# @before 36\nx = 1\n", "            \nx = 1\n"},
		{"A.php", "/**\n * 36\n * @dataProvider b\n */ // @test 36\n", "/**\n     \n * @dataProvider b\n */            \n"},
		{"a.rs", "/// 36\n//// 36\n/** 3*12 */ // 36\n", "///   \n       \n/**      */      \n"},
		{"a.sh", "cat <<E\n# 36\nE\n", "cat <<E\n# 36\nE\n"},
	} {
		data, _ := quiet(Source{Name: tc.file, Data: []byte(tc.source)}, nil)
		if got := string(data); got != tc.want {
			t.Errorf("%s:\n%q, want\n%q", tc.file, got, tc.want)
		}
	}
}

// The length of a comment or message, and its number of lines, cannot be seen any more.
func TestShort(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ file, source, want string }{
		{"test_a.py", "def test_a():\n    # three dozen\n    assert f() == 36, 'not  72/2'  # 36\n",
			"def test_a():\n    assert f() == 36, ' '\n"},
		{"test_a.py", "def test_a():\n    '''It is 36.\n\n    And not 72/2.\n    '''\n    x = '  a'\n",
			"def test_a():\n    '''\n    '''\n    x = '  a'\n"},
		{"a.test.js", "a/* 36 */b;\t/* x */\tc();\n", "a b; c();\n"},
	} {
		data, _, _ := short(Source{Name: tc.file, Data: []byte(tc.source)}, nil)
		if got := string(data); got != tc.want {
			t.Errorf("%s:\n%s\nbecomes\n%q\nwant\n%q", tc.file, tc.source, got, tc.want)
		}
	}
}
