# shellcheck shell=bash
# The newest PostgreSQL, of Debian unstable. The contract of these functions is in ../lib/service.sh.

# shellcheck source=/dev/null
source "$DEV_DIR/services.d/postgres.sh"

NEXT_MAJOR=18

service_installed() { [[ -d $(newer_folder sid postgres) ]]; }

service_install() {
    newer_packages sid postgres "postgresql-$NEXT_MAJOR" "postgresql-client-$NEXT_MAJOR"
}

service_version() {
    newer_program sid postgres "lib/postgresql/$NEXT_MAJOR/bin/postgres"
    "${NEWER[@]}" --version | cut -d " " -f 3
}

# The package that makes the user `postgres` may not be installed.
service_user() {
    if id -u postgres >/dev/null 2>&1; then say postgres; else say nobody; fi
}

# The programs are copied, because the server's user may not be able to read the cache. Each becomes
# a script that names the loader: `initdb` starts `postgres`, which it looks for beside itself.
service_create() {
    local bin libraries program
    cp --recursive --no-preserve=ownership "$(newer_folder sid postgres)/usr" "$DATA/programs"
    bin=$(postgres_bin)
    libraries=("$DATA"/programs/lib/*-linux-gnu)
    for program in initdb postgres psql pg_isready; do
        mv "$bin/$program" "$bin/$program.program"
        cat >"$bin/$program" <<SCRIPT
#!/bin/sh
exec ${libraries[0]}/ld-linux-*.so.* --library-path ${libraries[0]} --argv0 $bin/$program \\
    $bin/$program.program "\$@"
SCRIPT
        chmod 0755 "$bin/$program"
    done
    make_cluster
}

service_variable() { say POSTGRES_NEXT_URL; }

postgres_bin() { say "$DATA/programs/lib/postgresql/$NEXT_MAJOR/bin"; }

cluster() { say "$DATA/cluster"; }
