;; Asks for the file system.
(component
  (import "wasi:filesystem/preopens@0.2.6" (instance
    (export "get-directories" (func)))))
