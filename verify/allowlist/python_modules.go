package allowlist

import "strings"

// standardModules are the modules of Python's standard library (sys.stdlib_module_names of all versions from 3.6),
// except for some that no runner uses, such as turtle and parser.
var standardModules = set(strings.Fields(`
	__future__ _abc _ast _asyncio _bisect _blake2 _bootlocale _bootsubprocess _bz2 _codecs _codecs_cn _codecs_hk
	_codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw _collections _collections_abc _compat_pickle _compression
	_contextvars _csv _ctypes _datetime _decimal _elementtree _frozen_importlib _frozen_importlib_external
	_functools _hashlib _heapq _imp _io _json _locale _lsprof _lzma _markupbase _md5 _multibytecodec
	_multiprocessing _opcode _operator _pickle _posixshmem _posixsubprocess _py_abc _pyio _queue _random _sha1
	_sha256 _sha3 _sha512 _signal _sitebuiltins _socket _sqlite3 _sre _ssl _stat _statistics _string _strptime
	_struct _symtable _thread _threading_local _tokenize _tracemalloc _typing _uuid _warnings _weakref _weakrefset
	_zoneinfo abc annotationlib argparse array ast asyncio atexit base64 bdb binascii bisect builtins bz2 cProfile
	calendar cmath cmd code codecs codeop collections compileall compression concurrent configparser contextlib
	contextvars copy copyreg csv ctypes dataclasses datetime decimal difflib dis distutils doctest email encodings
	enum errno faulthandler fcntl fnmatch fractions ftplib functools gc genericpath getopt getpass gettext glob grp
	gzip hashlib heapq hmac html http imp importlib inspect io ipaddress itertools json keyword linecache locale
	logging lzma marshal math mimetypes mmap multiprocessing numbers opcode operator optparse os pathlib pdb pickle
	pkgutil platform posix posixpath pprint profile pwd py_compile pydoc pyexpat queue quopri random re readline
	reprlib resource runpy secrets select selectors shlex shutil signal site smtplib socket socketserver sqlite3
	sre_compile sre_constants sre_parse ssl stat string struct subprocess symtable sys sysconfig syslog tarfile
	tempfile termios textwrap threading time timeit token tokenize tomllib traceback tracemalloc tty types typing
	unicodedata unittest urllib uuid warnings weakref xml zipfile zipimport zlib zoneinfo
`))

// runnerModules are the installed modules that test runners and their common plugins import, and those that install
// packages.
var runnerModules = set(strings.Fields(`
	pytest _pytest py pluggy iniconfig packaging exceptiongroup tomli toml attr attrs six more_itertools atomicwrites
	wcwidth importlib_metadata importlib_resources zipp typing_extensions colorama pygments funcsigs pathlib2 nose nose2
	twisted mock coverage hypothesis sortedcontainers xdist execnet xprocess asgiref sqlparse tblib tox virtualenv
	pip setuptools pkg_resources wheel _distutils_hack anyio trio sniffio freezegun requests_mock responses flaky
	ward green testtools unittest2 behave robot asynctest aiohttp_pytest
`))
