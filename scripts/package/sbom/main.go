// Sbom writes the software bill of materials of Go programs to standard output, as CycloneDX JSON
// (https://cyclonedx.org/docs/1.6/json/).
//
// It reads the modules that the linker recorded in the programs themselves (debug/buildinfo), not go.mod: what is listed is
// what was linked, with the checksum that the Go checksum database has for it.
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	version := flag.String("version", "", "version of the release")
	epoch := flag.Int64("time", 0, "time of the release, in seconds since 1970: the same input gives the same output")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: sbom -version VERSION -time SECONDS PROGRAM...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(os.Stdout, *version, time.Unix(*epoch, 0).UTC(), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// write writes the bill of materials of the programs. Files that are not Go programs are listed without modules.
func write(w io.Writer, version string, at time.Time, programs []string) error {
	modules := map[string]cdx.Component{}
	linked := map[string][]string{} // by program: the references of its modules
	var components []cdx.Component
	for _, path := range programs {
		name := filepath.Base(path)
		components = append(components, cdx.Component{
			BOMRef: "program:" + name, Type: cdx.ComponentTypeApplication, Name: name, Version: version,
		})
		info, err := buildinfo.ReadFile(path)
		if err != nil && strings.Contains(err.Error(), "not a Go executable") {
			continue // corral-stub, which is C without any library
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		toolchain := cdx.Component{
			BOMRef: "pkg:golang/stdlib@" + info.GoVersion, Type: cdx.ComponentTypeLibrary, Name: "stdlib", Version: info.GoVersion,
			PackageURL: "pkg:golang/stdlib@" + strings.TrimPrefix(info.GoVersion, "go"),
		}
		modules[toolchain.BOMRef] = toolchain
		linked[name] = append(linked[name], toolchain.BOMRef)
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			c, err := component(m)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			modules[c.BOMRef] = c
			linked[name] = append(linked[name], c.BOMRef)
		}
	}
	var dependencies []cdx.Dependency
	for _, p := range components {
		refs := linked[p.Name]
		slices.Sort(refs)
		dependencies = append(dependencies, cdx.Dependency{Ref: p.BOMRef, Dependencies: &refs})
	}
	for _, ref := range slices.Sorted(maps.Keys(modules)) {
		components = append(components, modules[ref])
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: at.Format(time.RFC3339),
		Component: &cdx.Component{BOMRef: "corral", Type: cdx.ComponentTypeApplication, Name: "corral", Version: version},
	}
	bom.Components, bom.Dependencies = &components, &dependencies
	e := cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON)
	e.SetPretty(true)
	return e.Encode(bom)
}

// component describes a module. Its sum is that of go.sum: "h1:" and the base64 of a SHA-256 over the module's files.
func component(m *debug.Module) (cdx.Component, error) {
	url := "pkg:golang/" + m.Path + "@" + m.Version
	c := cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: url}
	encoded, isH1 := strings.CutPrefix(m.Sum, "h1:")
	if !isH1 {
		return c, nil // a module of this repository has none
	}
	sum, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return c, fmt.Errorf("checksum of %s: %w", m.Path, err)
	}
	c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	return c, nil
}
