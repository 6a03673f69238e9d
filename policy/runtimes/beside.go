package runtimes

// Code is a file of the job's private directory, but is meant for the working directory: what it requests by a relative path or the
// name of a package is looked for there. Where a language looks beside the file, it is told otherwise: Node by a hook, see globals,
// Go by an overlay, and others as follows.

// launchPython runs code.py. It puts the working directory first in the module search path, as for a script that lies there, and the
// packages of the nearest virtual environment last. It is not in tracebacks.
const launchPython = `def launch():
    import os, site, sys
    launcher, here = sys.argv[0], os.getcwd()
    path = os.path.join(os.path.dirname(os.path.abspath(launcher)), "code.py")
    sys.argv[0], sys.path[0] = path, here
    names, at = [n for n in (".venv", "venv") if sys.prefix == sys.base_prefix], here
    while names:
        found = [os.path.join(at, n) for n in names if os.path.isfile(os.path.join(at, n, "pyvenv.cfg"))]
        if found:
            site.addsitedir(os.path.join(found[0], "lib", "python%d.%d" % sys.version_info[:2], "site-packages"))
        if found or at == os.path.dirname(at):
            break
        at = os.path.dirname(at)
    def hook(kind, value, trace):
        while trace and trace.tb_frame.f_code.co_filename == launcher:
            trace = trace.tb_next
        sys.__excepthook__(kind, value.with_traceback(trace), trace)
    sys.excepthook = hook
    main = sys.modules["__main__"].__dict__
    del main["launch"]
    main["__file__"] = path
    with open(path, "rb") as f:
        source = f.read()
    exec(compile(source, path, "exec", 0, True), main)
launch()
`

func python(p *plan) {
	p.file("code.py", p.source)
	p.file("launch.py", launchPython)
	p.exec(append([]string{p.Path, p.in("launch.py")}, p.args...)...)
}

// relativeRuby makes require_relative of code.rb relative to the working directory.
const relativeRuby = `module Kernel
  main, here = File.join(File.realpath(__dir__), "code.rb"), Dir.pwd
  define_method(:require_relative) do |name|
    from = caller_locations(1, 1).first
    from = File.realpath(from.absolute_path || from.path)
    require File.expand_path(name, from == main ? here : File.dirname(from))
  end
  private :require_relative
end
`

func ruby(p *plan) {
	p.file("code.rb", p.source)
	p.file("relative.rb", relativeRuby)
	p.exec(append([]string{p.Path, "-r" + p.in("relative.rb"), p.in("code.rb")}, p.args...)...)
}

// beside returns the start of a script that makes links to the entries of the working directory beside the code, for programs that
// look nowhere else: mod and include_str! of Rust, __DIR__ of PHP. More entries than a command line has room for are left out.
func (p *plan) beside() string {
	return `ln -s "$PWD"/* "$PWD"/.[!.]* ` + quote(p.dir()) + " 2>/dev/null; "
}

func rust(p *plan) {
	p.file("code.rs", p.source)
	build := []string{p.Path, "--edition", "2021", "-o", p.in(binary), p.in("code.rs")}
	p.shell(p.beside() + quote(build...) + " </dev/null >&2 && exec " + quote(p.in(binary)) + ` "$@"`)
}
