;; Computes for ever before anything is called.
(func $start (loop $again (br $again)))
(start $start)
