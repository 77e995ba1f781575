module kscale.dev/oracle/harness

go 1.26.0
