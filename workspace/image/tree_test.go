package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"corral/internal/test/sandboxtest"
	"corral/workspace/image/unpack"
)

// headers are the entries of a layer.
type headers = []*tar.Header

// TestLayers checks the effect of upper layers on lower ones.
func TestLayers(t *testing.T) {
	base := headers{
		dir("d"), text("d/a", "a"), text("d/b", "b"), dir("d/sub"), text("d/sub/x", "x"), text("f", "f"), symlink("l", "d"),
	}
	type files = map[string]string
	with := func(change files) files { // base with changes; "" removes
		all := files{"d": "/755", "d/a": "a", "d/b": "b", "d/sub": "/755", "d/sub/x": "x", "f": "f", "l": "-> d"}
		for name, content := range change {
			if all[name] = content; content == "" {
				delete(all, name)
			}
		}
		return all
	}
	closed := dir("d")
	closed.Mode = 0o700
	tests := []struct {
		name   string
		layers []headers
		want   files
	}{
		{"one", nil, with(nil)},
		{"a file replaced", []headers{{text("f", "new")}}, with(files{"f": "new"})},
		{"a file added", []headers{{text("d/c", "c")}}, with(files{"d/c": "c"})},
		{"a directory's mode", []headers{{closed}}, with(files{"d": "/700"})},
		{
			"settings of dpkg",
			[]headers{{dir("etc"), dir("etc/dpkg"), dir("etc/dpkg/dpkg.cfg.d")}},
			with(files{"etc": "/755", "etc/dpkg": "/755", "etc/dpkg/dpkg.cfg.d": "/755", "etc/dpkg/dpkg.cfg.d/corral": "force-not-root\n"}),
		},
		{
			"settings of dpkg that an earlier import wrote",
			[]headers{{dir("etc"), dir("etc/dpkg"), dir("etc/dpkg/dpkg.cfg.d"), text("etc/dpkg/dpkg.cfg.d/corral", "# mine\n")}},
			with(files{"etc": "/755", "etc/dpkg": "/755", "etc/dpkg/dpkg.cfg.d": "/755", "etc/dpkg/dpkg.cfg.d/corral": "# mine\n"}),
		},
		{"a whiteout", []headers{{text("d/.wh.a", "")}}, with(files{"d/a": ""})},
		{"of a directory", []headers{{text(".wh.d", "")}}, with(files{"d": "", "d/a": "", "d/b": "", "d/sub": "", "d/sub/x": ""})},
		{"of a link", []headers{{text(".wh.l", "")}}, with(files{"l": ""})},
		{"of nothing", []headers{{text(".wh.none", ""), text("none/.wh.none", ""), text("f/.wh.none", "")}}, with(nil)},
		{
			"then re-created",
			[]headers{{text(".wh.d", "")}, {dir("d"), text("d/c", "c")}},
			with(files{"d/a": "", "d/b": "", "d/sub": "", "d/sub/x": "", "d/c": "c"}),
		},
		{"in the layer that makes it", []headers{{text("n", "n"), text(".wh.n", "")}}, with(files{"n": "n"})},
		{
			"behind what it does not hide",
			[]headers{{dir("d"), text("d/c", "c"), text(".wh.d", "")}},
			with(files{"d/a": "", "d/b": "", "d/sub": "", "d/sub/x": "", "d/c": "c"}),
		},
		{
			"an opaque directory",
			[]headers{{dir("d"), text("d/.wh..wh..opq", ""), text("d/c", "c")}},
			with(files{"d/a": "", "d/b": "", "d/sub": "", "d/sub/x": "", "d/c": "c"}),
		},
		{
			"opaque at the end",
			[]headers{{dir("d"), text("d/sub/y", "y"), text("d/.wh..wh..opq", "")}},
			with(files{"d/a": "", "d/b": "", "d/sub/x": "", "d/sub/y": "y"}),
		},
		{
			"opaque twice, and again below",
			[]headers{
				{text("d/.wh..wh..opq", ""), text("d/c", "c"), text("d/.wh..wh..opq", "")},
				{text("d/.wh..wh..opq", ""), text("d/e", "e")},
			},
			with(files{"d/a": "", "d/b": "", "d/sub": "", "d/sub/x": "", "d/e": "e"}),
		},
		{"the root opaque", []headers{{text(".wh..wh..opq", ""), text("only", "1")}}, files{"only": "1"}},
		{"of aufs", []headers{{text(".wh..wh.plnk", ""), text("d/.wh..wh.orph", "")}}, with(nil)},
		{"a file over a directory", []headers{{text("d", "file")}}, with(files{"d": "file", "d/a": "", "d/b": "", "d/sub": "", "d/sub/x": ""})},
		{"a directory over a file", []headers{{dir("f"), text("f/x", "x")}}, with(files{"f": "/755", "f/x": "x"})},
		{"a directory over a link", []headers{{dir("l"), text("l/x", "x")}}, with(files{"l": "/755", "l/x": "x"})},
		{"a link over a directory", []headers{{symlink("d", "/etc")}}, with(files{"d": "-> /etc", "d/a": "", "d/b": "", "d/sub": "", "d/sub/x": ""})},
		{"a device over a file", []headers{{other(tar.TypeChar, "f")}}, with(files{"f": ""})},
		{"a hard link to a lower file", []headers{{link("again", "f")}}, with(files{"again": "f", "f": "= again"})},
		{"whose first name goes", []headers{{link("again", "f")}, {text(".wh.f", "")}}, with(files{"again": "f", "f": ""})},
		{"whose first name is replaced", []headers{{link("again", "f")}, {text("f", "new")}}, with(files{"again": "f", "f": "new"})},
		{"a hard link to a symbolic one", []headers{{link("again", "l")}}, with(files{"again": "-> d"})},
		{"a hard link to itself", []headers{{link("f", "f")}}, with(nil)},
		{"a directory that is implied", []headers{{text("p/q/x", "x")}}, with(files{"p": "/755", "p/q": "/755", "p/q/x": "x"})},
		{
			"the root's own entry",
			[]headers{{dir("."), dir("/"), text("./g", "g"), text("/h", "h"), text("d//.//c", "c")}},
			with(files{"g": "g", "h": "h", "d/c": "c"}),
		},
		{"a file twice", []headers{{text("n", "first"), text("n", "second")}}, with(files{"n": "second"})},
		{"names that differ in case", []headers{{text("F", "F"), dir("D")}}, with(files{"F": "F", "D": "/755"})},
		{"a name that is not UTF-8", []headers{{text("caf\xe9", "x")}}, with(files{"caf\xe9": "x"})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			layers := append([]headers{base}, tt.layers...)
			_, data, sum, err := flat(t, layoutOf(t, imageOf(t, layers...)), generous)
			if err != nil {
				t.Fatal(err)
			}
			sameListing(t, listing(t, data), tt.want)
			unpacked(t, data, sum)
		})
	}
}

// TestPlainNames checks that whiteout names have no effect in a plain archive.
func TestPlainNames(t *testing.T) {
	_, data, sum, err := flat(t, written(t, archive(t, text("a", "a"), text(".wh.a", "1"), text(".wh..wh..opq", "2"))), generous)
	if err != nil {
		t.Fatal(err)
	}
	sameListing(t, listing(t, data), map[string]string{"a": "a", ".wh.a": "1", ".wh..wh..opq": "2"})
	unpacked(t, data, sum)
}

// TestTricks checks that malicious entries are refused before anything is written.
func TestTricks(t *testing.T) {
	deep := strings.Repeat("d/", unpack.MaxDepth)
	tests := []struct {
		name   string
		layers []headers
		err    string
	}{
		{"up", []headers{{text("../x", "")}}, `entry "../x": the name contains ".."`},
		{"up and back", []headers{{dir("a"), text("a/../x", "")}}, `the name contains ".."`},
		{"up from the root", []headers{{text("/../x", "")}}, `the name contains ".."`},
		{"up by a whiteout", []headers{{text("a", ""), text("../.wh.a", "")}}, `the name contains ".."`},
		{"a whiteout of itself", []headers{{dir("a"), text("a/.wh..", "")}}, `a whiteout of the invalid name "."`},
		{"a whiteout of its parent", []headers{{dir("a"), text("a/.wh...", "")}}, `a whiteout of the invalid name ".."`},
		{"a whiteout of no name", []headers{{dir("a"), text("a/.wh.", "")}}, `a whiteout of the invalid name ""`},
		{"through a link", []headers{{symlink("a", "/etc"), text("a/x", "")}}, `its directory "a" is a symbolic link`},
		{"through a lower link", []headers{{symlink("a", "/etc")}, {text("a/x", "")}}, `its directory "a" is a symbolic link`},
		{"through a link inside", []headers{{dir("b"), symlink("a", "b"), text("a/x", "")}}, `its directory "a" is a symbolic link`},
		{"below a file", []headers{{text("a", ""), text("a/x", "")}}, `its directory "a" is a file`},
		{"a hard link up", []headers{{link("a", "../../etc/passwd")}}, `a hard link to "../../etc/passwd"`},
		{"a hard link to an absolute name", []headers{{link("a", "/etc/passwd")}}, "which is not an earlier entry"},
		{"a hard link through a link", []headers{{symlink("b", "/etc"), link("a", "b/passwd")}}, "which is not an earlier entry"},
		{"a hard link to a later file", []headers{{link("a", "b"), text("b", "")}}, "which is not an earlier entry"},
		{"a hard link to what is hidden", []headers{{text("b", "")}, {text(".wh.b", ""), link("a", "b")}}, "which is not an earlier entry"},
		{"a hard link to a directory", []headers{{dir("b"), link("a", "b")}}, "which is a directory"},
		{"a hard link to the root", []headers{{link("a", "/")}}, "which is not an earlier entry"},
		{"a hard link to nothing", []headers{{{Typeflag: tar.TypeLink, Name: "a"}}}, "which is not an earlier entry"},
		{"a symbolic link to nothing", []headers{{{Typeflag: tar.TypeSymlink, Name: "a"}}}, "a link target of 0 bytes"},
		{"a long target", []headers{{symlink("a", strings.Repeat("x", unpack.MaxPath+1))}}, "a link target of 4096 bytes"},
		{"a long component", []headers{{text(strings.Repeat("n", 256), "")}}, "a component of 256 bytes"},
		{"a long name", []headers{{text(strings.Repeat("nnn/", 1024)+"x", "")}}, "a name of 4097 bytes"},
		{"a deep name", []headers{{text(deep+"x", "")}}, "257 components, above the maximum of 256"},
		{"an unknown kind", []headers{{other('M', "a")}}, "unknown entry type 'M'"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, data, _, err := flat(t, layoutOf(t, imageOf(t, tt.layers...)), generous)
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v, want an error with %q", err, tt.err)
			}
			if len(data) > 0 {
				t.Errorf("%d bytes were written", len(data))
			}
		})
	}
}

// TestDropped checks that omitted entries are counted, and that dropped attributes are not in the archive.
func TestDropped(t *testing.T) {
	suid, sticky, owned := text("suid", "x"), dir("tmp"), text("owned", "x")
	suid.Mode, sticky.Mode = 0o6755, 0o3777
	owned.Uid, owned.Gid, owned.Uname = 12345, 12345, "x"
	owned.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "x", "SCHILY.xattr.user.overlay.opaque": "y"}
	data := archive(t, suid, sticky, owned, other(tar.TypeChar, "null"), other(tar.TypeBlock, "disk"), other(tar.TypeFifo, "pipe"),
		link("null2", "null"), symlink("log", "/dev/null"))
	_, flattened, sum, err := flat(t, written(t, data), generous)
	if err != nil {
		t.Fatal(err)
	}
	if sum.Devices != 4 || sum.SetID != 2 || sum.Entries != 4 {
		t.Errorf("%+v", sum)
	}
	sameListing(t, listing(t, flattened), map[string]string{"suid": "x", "tmp": "/1777", "owned": "x", "log": "-> /dev/null"})
	if bytes.Contains(flattened, []byte("xattr")) || bytes.Contains(flattened, []byte("30071")) { // 12345 in octal
		t.Error("the archive has attributes or owners")
	}
	info, err := os.Stat(unpacked(t, flattened, sum) + "/suid")
	if err != nil || info.Mode() != 0o755 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestBombs checks that small inputs with huge output quickly reach a limit.
func TestBombs(t *testing.T) {
	limits := Options{Limits: Limits{Entries: 1000, Bytes: 1 << 20}}
	var many, small headers
	for n := range 1001 {
		many = append(many, text(strings.Repeat("x", n%200+1)+"/"+strings.Repeat("y", n/200+1), ""))
	}
	for range 4001 {
		small = append(small, text("same", ""))
	}
	halves := func(size int) []headers {
		return []headers{{text("a", strings.Repeat("\x00", size))}, {text("b", strings.Repeat("\x00", size))}}
	}
	over := []headers{}
	for range 20 {
		over = append(over, headers{text("same", strings.Repeat("\x00", 1<<20))})
	}
	var whiteouts headers
	for range 3000 {
		whiteouts = append(whiteouts, text(".wh.same", ""))
	}
	tests := []struct {
		name, path, err string
	}{
		{"many files", layoutOf(t, imageOf(t, many)), "more than 1000 files"},
		{"many names of one file", layoutOf(t, imageOf(t, small)), "far more entries"},
		{"many entries, few files", layoutOf(t, imageOf(t, headers{text("same", "")}, whiteouts, whiteouts)), "far more entries"},
		{"deep names", layoutOf(t, imageOf(t, deepNames())), "more than 1000 files"},
		{"large file", written(t, gzipped(t, archive(t, text("a", strings.Repeat("\x00", 2<<20))))), "more than 1048576 bytes"},
		{"two layers together", layoutOf(t, imageOf(t, halves(600<<10)...)), "more than 1048576 bytes"},
		{"many layers of one file", layoutOf(t, imageOf(t, over...)), "far larger than"},
		{"zeros behind the archive", written(t, zstandard(t, append(archive(t, text("etc/a", "a")), make([]byte, 64<<20)...))), "far larger than"},
		{"gzip", written(t, bomb(t, 1<<30)), "far larger than"},
		{"zstd with a window of a gigabyte", written(t, windowed(t)), "window size"},
		{"sparse", written(t, sparseArchive(t)), "more than 1048576 bytes"},
		{"many layers", layoutOf(t, withLayers(t, runtime.GOARCH, manyLayers(t)...)), "at most 512"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, _, err := flat(t, tt.path, limits)
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v, want an error with %q", err, tt.err)
			}
		})
	}
}

// deepNames returns few entries with many implied directories.
func deepNames() headers {
	var all headers
	for n := range 50 {
		all = append(all, text(strings.Repeat(string(rune('a'+n%26))+strings.Repeat("n", n/26)+"/", unpack.MaxDepth-1)+"x", ""))
	}
	return all
}

func manyLayers(t *testing.T) []v1.Layer {
	t.Helper()
	one := packedLayer(t, headers{text("a", "a")}, gzipped, types.OCILayer)
	var all []v1.Layer
	for range MaxLayers + 1 {
		all = append(all, one)
	}
	return all
}

// bomb returns a compressed archive with a file of zeros whose header declares size bytes.
func bomb(t *testing.T, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	a := tar.NewWriter(z)
	err = a.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "usr", Size: size, Mode: 0o644})
	for n := int64(0); err == nil && n < 64<<20; n += 1 << 20 { // the reader stops before
		_, err = a.Write(make([]byte, 1<<20))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// windowed returns zstd data that requires a window of a gigabyte.
func windowed(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	// RFC 8878, 3.1.1.1: no single segment, no checksum, no size; exponent 20, mantissa 0: 2^30 bytes.
	b.Write([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 20 << 3})
	b.Write([]byte{1, 0, 0}) // an empty last block
	if _, err := zstd.NewReader(nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sparseArchive returns an archive with an empty sparse file of a terabyte.
func sparseArchive(t *testing.T) []byte {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Program("tar"))
	from := t.TempDir()
	if err := errors.Join(os.WriteFile(from+"/big", nil, 0o600), os.Truncate(from+"/big", 1<<40)); err != nil {
		t.Fatal(err)
	}
	data, err := exec.Command("tar", "--sparse", "-C", from, "-cf", "-", "big").Output()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestSparse checks that holes of an archive become zeros, and holes again when unpacked.
func TestSparse(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("tar"))
	from := t.TempDir()
	f, err := os.Create(filepath.Join(from, "disk")) //nolint:forbidigo // a new directory of this test's own
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("end"), 32<<20)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"gnu", "pax"} {
		data, err := exec.Command("tar", "--sparse", "--format="+format, "-C", from, "-cf", "-", "disk").Output()
		if err != nil {
			t.Fatal(err)
		}
		_, flattened, sum, err := flat(t, written(t, data), generous)
		if err != nil {
			t.Fatal(err)
		}
		path := unpacked(t, flattened, sum) + "/disk"
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > 1<<20 {
			t.Errorf("%s: it takes %d bytes", format, used)
		}
		content, err := os.ReadFile(path)
		if err != nil || len(content) != 32<<20+3 || !bytes.HasSuffix(content, []byte("\x00end")) {
			t.Errorf("%s: %d bytes, %v", format, len(content), err)
		}
	}
}

// FuzzFlatten checks that for any input the unpacker accepts the output, unless flatten returns an error.
func FuzzFlatten(f *testing.F) {
	f.Add(archive(f, small()...), archive(f, text(".wh.etc", ""), text("usr/.wh..wh..opq", "")))
	f.Add(gzipped(f, archive(f, small()...)), zstandard(f, archive(f, link("a", "etc/passwd"))))
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
		if len(lower)+len(upper) > 64<<10 {
			t.Skip()
		}
		open := func(data []byte) func() (io.ReadCloser, error) {
			return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
		}
		limits := Limits{Entries: 200, Bytes: 1 << 20}
		var b bytes.Buffer
		sum, err := flatten(&b, []*layer{{open: open(lower)}, {open: open(upper)}}, true, limits)
		if err != nil {
			return
		}
		if sum.Entries > limits.Entries || sum.Bytes > limits.Bytes {
			t.Errorf("more than the limits: %s", sum.Totals)
		}
		unpacked(t, b.Bytes(), sum)
	})
}
