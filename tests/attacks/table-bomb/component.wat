;; Declares a table of ten million entries.
(table 10000000 funcref)
