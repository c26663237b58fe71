"""Plants faults in the package and tells which tests find them: how good the tests are, before and after a change.

    python -m tools.faults draw --seed 47 --count 80 > tools/faults/first.json
    git clone . ../planted && (cd ../planted && make setup)
    python -m tools.faults plant tools/faults/first.json ../planted      # all at once, each asleep
    (cd ../planted && NOVA_FAULT_REPORT=/tmp/reached.tsv .venv/bin/python -m pytest -p nova_faults_hunter \\
        -m 'not exhaustive' -n 2 --dist loadfile -p tools.suite_costs --costs-file /tmp/costs.json)
    python -m tools.faults hunt tools/faults/first.json ../planted \\
        --reached /tmp/reached.tsv --costs /tmp/costs.json --folder /tmp/hunt

All faults of a list stand in one copy of the package, each behind a call that tells whether it is awake. So one run of
the tests says which tests reach which fault, and only these run with the fault awake. They run in warm processes that
wake one fault after another. A fault counts as found if a test fails with it awake, and passes right after without it.

``found.json`` tells for each fault of each list which test found it: one of the tests of CI before they became cheaper,
one of CI's after that, and one of ``make test``.
"""
